"""Who answers: the interface of a labeler, the registry, and the labelers of the package."""

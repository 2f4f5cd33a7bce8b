"""Gates of the literature that studies compare with ours, and the registry with all gates."""

"""The verbs that the laboratory adds to `stacksl`."""

"""What a run is asked to do: settings with their origin, presets, budget."""

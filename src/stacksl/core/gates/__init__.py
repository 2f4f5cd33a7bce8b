"""When to buy a label: each gate is a statistic and a threshold."""

"""Learning: policies over the structured face of worlds, update rules, training rows, the loop."""

"""The published figures, run again. Above all layers: commands alone use it."""

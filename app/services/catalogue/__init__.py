"""Collections and items: what clients write and read back."""

"""How the pictures of each kind are chosen and drawn."""

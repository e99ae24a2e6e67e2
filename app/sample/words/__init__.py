"""What is said about the pictures of each kind."""

"""What keeps the system true when messages, workers or machines are lost."""

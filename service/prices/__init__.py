"""The price book: every offer, its price now and its history."""

"""Jobs: submitted, shown, controlled. Their status is the reconciler's; the API writes wishes."""

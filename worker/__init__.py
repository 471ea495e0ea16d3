"""The Celery workers: reconcile, provision, price, bill, deliver, sweep."""

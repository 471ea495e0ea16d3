"""The schema's history, run by `service.db.migrate`."""

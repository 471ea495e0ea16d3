"""One tick of a job: load -> observe -> decide -> intend -> act -> record."""

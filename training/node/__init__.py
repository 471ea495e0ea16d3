"""The node agent: the parent of a node's ranks, and the node's only voice to the service.

Reading order: `lifecycle` (every decision, pure), `agent` (the loop that carries the decisions out), then one module a
concern: `link` and `pulse` (heartbeats), `grant`, `notices`, `preparation` (`bundle`, `restore`), `ranks`, `logs`, `metrics`,
`uploads` (`saved`, `commit`), `closing` (`outputs`), `exits`.

Nothing here imports torch, and a node without FastAPI, SQLAlchemy, Celery or SkyPilot runs all of it.
"""

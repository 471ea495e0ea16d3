"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from service.db.types import AutoId, Json, UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotent_requests",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=255), nullable=False),
        sa.Column("status_code", sa.BigInteger(), nullable=False),
        sa.Column("body", Json, nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "key", name="pk_idempotent_requests"),
    )
    op.create_index("ix_idempotent_requests_created_at", "idempotent_requests", ["created_at"], unique=False)
    op.create_table(
        "offers",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("provider", sa.String(length=255), nullable=False),
        sa.Column("region", sa.String(length=255), nullable=False),
        sa.Column("zone", sa.String(length=255), nullable=False),
        sa.Column("instance_type", sa.String(length=255), nullable=False),
        sa.Column("market", sa.String(length=255), nullable=False),
        sa.Column("accelerators", sa.String(length=255), nullable=True),
        sa.Column("num_cpus", sa.BigInteger(), nullable=False),
        sa.Column("memory_gib", sa.Double(), nullable=False),
        sa.Column("on_demand_hourly_nano", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.Column("unavailable_until", UtcDateTime(), nullable=True),
        sa.Column("unavailable_reason", sa.String(length=255), nullable=True),
        sa.Column("failure_count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_offers"),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("allows_unbudgeted_jobs", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
        sa.UniqueConstraint("name", name="uq_projects_name"),
    )
    op.create_table(
        "quotes",
        sa.Column("offer_id", sa.String(length=255), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("hourly_nano", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(length=255), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("offer_id", "at", name="pk_quotes"),
    )
    op.create_table(
        "watches",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("last_at", UtcDateTime(), nullable=False),
        sa.Column("returned_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_watches"),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=255), nullable=False),
        sa.Column("secret_hash", sa.String(length=255), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=True),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.Column("last_used_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_api_keys_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )
    op.create_index("ix_api_keys_project_id", "api_keys", ["project_id"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", AutoId, nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=True),
        sa.Column("type", sa.String(length=255), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("relayed_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_events_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_job", "events", ["job_id", "id"], unique=False)
    op.create_index("ix_events_project", "events", ["project_id", "id"], unique=False)
    op.create_index(
        "ix_events_unrelayed", "events", ["id"], unique=False, postgresql_where=sa.text("relayed_at IS NULL")
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("spec", Json, nullable=False),
        sa.Column("sealed_secrets", sa.LargeBinary(), nullable=True),
        sa.Column("status", sa.String(length=255), nullable=False),
        sa.Column("status_reason", sa.String(length=255), nullable=True),
        sa.Column("end_reason", sa.String(length=255), nullable=True),
        sa.Column("has_user_hold", sa.Boolean(), nullable=False),
        sa.Column("has_budget_hold", sa.Boolean(), nullable=False),
        sa.Column("stop_reason", sa.String(length=255), nullable=True),
        sa.Column("is_stop_now", sa.Boolean(), nullable=False),
        sa.Column("retry_requested_at", UtcDateTime(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("num_nodes", sa.BigInteger(), nullable=False),
        sa.Column("preemption_count", sa.BigInteger(), nullable=False),
        sa.Column("fault_count", sa.BigInteger(), nullable=False),
        sa.Column("faults_since_progress", sa.BigInteger(), nullable=False),
        sa.Column("user_error_count", sa.BigInteger(), nullable=False),
        sa.Column("launch_failure_count", sa.BigInteger(), nullable=False),
        sa.Column("not_before", UtcDateTime(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("target_steps", sa.BigInteger(), nullable=True),
        sa.Column("checkpoint_step", sa.BigInteger(), nullable=True),
        sa.Column("error", Json, nullable=True),
        sa.Column("due_at", UtcDateTime(), nullable=True),
        sa.Column("wakes", sa.BigInteger(), nullable=False),
        sa.Column("claim_token", sa.String(length=255), nullable=True),
        sa.Column("claimed_until", UtcDateTime(), nullable=True),
        sa.Column("deadline_missed_at", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_jobs_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_due_at", "jobs", ["due_at"], unique=False)
    op.create_index("ix_jobs_page", "jobs", ["project_id", "created_at", "id"], unique=False)
    op.create_index("ix_jobs_status", "jobs", ["project_id", "status"], unique=False)
    op.create_table(
        "ledger_entries",
        sa.Column("id", AutoId, nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=True),
        sa.Column("attempt_id", sa.String(length=255), nullable=True),
        sa.Column("category", sa.String(length=255), nullable=False),
        sa.Column("window_start", UtcDateTime(), nullable=False),
        sa.Column("window_end", UtcDateTime(), nullable=False),
        sa.Column("hourly_nano", sa.BigInteger(), nullable=False),
        sa.Column("num_nodes", sa.BigInteger(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_ledger_entries_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_entries"),
        sa.UniqueConstraint("key", name="uq_ledger_entries_key"),
    )
    op.create_index("ix_ledger_entries_attempt_id", "ledger_entries", ["attempt_id"], unique=False)
    op.create_index("ix_ledger_entries_job_id", "ledger_entries", ["job_id"], unique=False)
    op.create_index("ix_ledger_entries_project_id", "ledger_entries", ["project_id"], unique=False)
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("url", sa.String(length=2048), nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary(), nullable=False),
        sa.Column("event_types", Json, nullable=False),
        sa.Column("disabled_at", UtcDateTime(), nullable=True),
        sa.Column("disabled_reason", sa.String(length=255), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_webhook_endpoints_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_endpoints"),
    )
    op.create_index("ix_webhook_endpoints_project_id", "webhook_endpoints", ["project_id"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("cause", sa.String(length=255), nullable=True),
        sa.Column("cluster_name", sa.String(length=255), nullable=False),
        sa.Column("offer_id", sa.String(length=255), nullable=False),
        sa.Column("num_nodes", sa.BigInteger(), nullable=False),
        sa.Column("ceiling_hourly_nano", sa.BigInteger(), nullable=False),
        sa.Column("hourly_nano", sa.BigInteger(), nullable=False),
        sa.Column("on_demand_hourly_nano", sa.BigInteger(), nullable=False),
        sa.Column("intended_at", UtcDateTime(), nullable=False),
        sa.Column("launched_at", UtcDateTime(), nullable=True),
        sa.Column("launch_tries", sa.BigInteger(), nullable=False),
        sa.Column("launch_failure", sa.String(length=255), nullable=True),
        sa.Column("launch_detail", sa.String(length=2000), nullable=True),
        sa.Column("tried_at", UtcDateTime(), nullable=True),
        sa.Column("next_try_at", UtcDateTime(), nullable=True),
        sa.Column("up_at", UtcDateTime(), nullable=True),
        sa.Column("first_step_at", UtcDateTime(), nullable=True),
        sa.Column("resumed_from_step", sa.BigInteger(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("notice_at", UtcDateTime(), nullable=True),
        sa.Column("lost_at", UtcDateTime(), nullable=True),
        sa.Column("draining_at", UtcDateTime(), nullable=True),
        sa.Column("terminating_at", UtcDateTime(), nullable=True),
        sa.Column("terminate_tries", sa.BigInteger(), nullable=False),
        sa.Column("is_unconfirmed_alarmed", sa.Boolean(), nullable=False),
        sa.Column("gone_at", UtcDateTime(), nullable=True),
        sa.Column("grant_until", UtcDateTime(), nullable=False),
        sa.Column("covered_until", UtcDateTime(), nullable=False),
        sa.Column("accrued_until", UtcDateTime(), nullable=False),
        sa.Column("reserved_nano", sa.BigInteger(), nullable=False),
        sa.Column("cost_nano", sa.BigInteger(), nullable=False),
        sa.Column("on_demand_cost_nano", sa.BigInteger(), nullable=False),
        sa.Column("is_checkpoint_wanted", sa.Boolean(), nullable=False),
        sa.CheckConstraint("reserved_nano >= 0", name=op.f("ck_attempts_reserved")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_attempts_job_id_jobs"),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("cluster_name", name="uq_attempts_cluster_name"),
        sa.UniqueConstraint("job_id", "fence", name="uq_attempts_job_id"),
    )
    op.create_index("ix_attempts_intended", "attempts", ["intended_at"], unique=False)
    op.create_index(
        "ix_attempts_live", "attempts", ["job_id"], unique=False, postgresql_where=sa.text("state <> 'gone'")
    )
    op.create_index("ix_attempts_offer_id", "attempts", ["offer_id"], unique=False)
    op.create_table(
        "budgets",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=True),
        sa.Column("cap_nano", sa.BigInteger(), nullable=False),
        sa.Column("spent_nano", sa.BigInteger(), nullable=False),
        sa.Column("reserved_nano", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("cap_nano > 0", name=op.f("ck_budgets_cap")),
        sa.CheckConstraint("reserved_nano >= 0", name=op.f("ck_budgets_reserved")),
        sa.CheckConstraint("spent_nano >= 0", name=op.f("ck_budgets_spent")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_budgets_job_id_jobs"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_budgets_project_id_projects"),
        sa.PrimaryKeyConstraint("id", name="pk_budgets"),
        sa.UniqueConstraint("job_id", name="uq_budgets_job_id"),
    )
    op.create_index("ix_budgets_project_id", "budgets", ["project_id"], unique=False)
    op.create_index(
        "uq_budgets_project",
        "budgets",
        ["project_id"],
        unique=True,
        postgresql_where=sa.text("job_id IS NULL"),
        sqlite_where=sa.text("job_id IS NULL"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", AutoId, nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("manifest_sha256", sa.String(length=255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("val_loss", sa.Double(), nullable=True),
        sa.Column("world_size", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("verified_at", UtcDateTime(), nullable=False),
        sa.Column("registered_at", UtcDateTime(), nullable=False),
        sa.Column("corrupt_at", UtcDateTime(), nullable=True),
        sa.Column("corrupt_reason", sa.String(length=500), nullable=True),
        sa.Column("deleted_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_checkpoints_job_id_jobs"),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoints"),
        sa.UniqueConstraint("job_id", "step", "fence", name="uq_checkpoints_job_id"),
    )
    op.create_table(
        "drills",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("node_rank", sa.BigInteger(), nullable=False),
        sa.Column("has_notice", sa.Boolean(), nullable=False),
        sa.Column("requested_at", UtcDateTime(), nullable=False),
        sa.Column("acted_at", UtcDateTime(), nullable=True),
        sa.Column("failure", sa.String(length=500), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_drills_job_id_jobs"),
        sa.PrimaryKeyConstraint("id", name="pk_drills"),
    )
    op.create_index("ix_drills_job_id", "drills", ["job_id"], unique=False)
    op.create_table(
        "log_lines",
        sa.Column("id", AutoId, nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("node_rank", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("stream", sa.String(length=255), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("text", sa.String(length=2000), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_log_lines_job_id_jobs"),
        sa.PrimaryKeyConstraint("id", name="pk_log_lines"),
    )
    op.create_index("ix_log_lines_job", "log_lines", ["job_id", "id"], unique=False)
    op.create_table(
        "metrics",
        sa.Column("job_id", sa.String(length=255), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("values", Json, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_metrics_job_id_jobs"),
        sa.PrimaryKeyConstraint("job_id", "step", name="pk_metrics"),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("endpoint_id", sa.String(length=255), nullable=False),
        sa.Column("event_id", AutoId, nullable=False),
        sa.Column("state", sa.String(length=255), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=True),
        sa.Column("claim_token", sa.String(length=255), nullable=True),
        sa.Column("claimed_until", UtcDateTime(), nullable=True),
        sa.Column("response_status", sa.BigInteger(), nullable=True),
        sa.Column("response_excerpt", sa.String(length=2000), nullable=True),
        sa.Column("error", sa.String(length=500), nullable=True),
        sa.Column("latency_ms", sa.BigInteger(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("delivered_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["webhook_endpoints.id"], name="fk_webhook_deliveries_endpoint_id_webhook_endpoints"
        ),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name="fk_webhook_deliveries_event_id_events"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_deliveries"),
        sa.UniqueConstraint("endpoint_id", "event_id", name="uq_webhook_deliveries_endpoint_id"),
    )
    op.create_index("ix_webhook_deliveries_due_at", "webhook_deliveries", ["due_at"], unique=False)
    op.create_table(
        "budget_alerts",
        sa.Column("budget_id", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("threshold_percent", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("crossed_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name="fk_budget_alerts_budget_id_budgets"),
        sa.PrimaryKeyConstraint("budget_id", "generation", "threshold_percent", name="pk_budget_alerts"),
    )
    op.create_table(
        "nodes",
        sa.Column("attempt_id", sa.String(length=255), nullable=False),
        sa.Column("node_rank", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_heartbeat_at", UtcDateTime(), nullable=False),
        sa.Column("phase", sa.String(length=255), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("notice", Json, nullable=True),
        sa.Column("exit", Json, nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_nodes_attempt_id_attempts"),
        sa.PrimaryKeyConstraint("attempt_id", "node_rank", name="pk_nodes"),
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup: the schema only goes forward")

"""What makes the databases themselves refuse to change or remove entries of the activity log."""

TABLE = "accounts_activityentry"
SAYS = "the activity log is only added to"
SQLITE = [
    f"CREATE TRIGGER activity_no_{event.lower()} BEFORE {event} ON {TABLE} BEGIN SELECT RAISE(ABORT, '{SAYS}'); END"
    for event in ("UPDATE", "DELETE")
]
SQLITE_OFF = [f"DROP TRIGGER IF EXISTS activity_no_{event}" for event in ("update", "delete")]
POSTGRESQL = [
    "CREATE OR REPLACE FUNCTION activity_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{SAYS}'; END $$",
    f"CREATE TRIGGER activity_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {TABLE} "
    "FOR EACH STATEMENT EXECUTE FUNCTION activity_is_only_added_to()",
]
POSTGRESQL_OFF = [
    f"DROP TRIGGER IF EXISTS activity_no_change ON {TABLE}",
    "DROP FUNCTION IF EXISTS activity_is_only_added_to()",
]
ON = {"sqlite": SQLITE, "postgresql": POSTGRESQL}
OFF = {"sqlite": SQLITE_OFF, "postgresql": POSTGRESQL_OFF}

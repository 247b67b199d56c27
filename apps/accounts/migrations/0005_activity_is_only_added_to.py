from django.db import migrations

from apps.accounts.migrations import _append_only


def refuse(apps, schema_editor):
    for statement in _append_only.ON[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def allow(apps, schema_editor):
    for statement in _append_only.OFF[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    """A later migration that makes SQLite write this table anew has to call `refuse` again: triggers go with a table."""

    dependencies = [
        ("accounts", "0004_chain_activity"),
    ]

    operations = [migrations.RunPython(refuse, allow)]

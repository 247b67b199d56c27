from django.db import migrations, models

from apps.accounts.activity_chain import FIELDS, GENESIS, digest_of

BATCH = 1000


def chain_what_is_there(apps, schema_editor):
    """Entries from before there was a chain are chained as they are found; from here on nobody can change them unseen."""
    entries, head = apps.get_model("accounts", "ActivityEntry"), apps.get_model("accounts", "ActivityHead")
    last_id, digest = 0, GENESIS
    while rows := list(entries.objects.filter(pk__gt=last_id).order_by("pk")[:BATCH]):
        for row in rows:
            row.previous = digest
            row.digest = digest = digest_of({name: getattr(row, name) for name in FIELDS})
            last_id = row.pk
        entries.objects.bulk_update(rows, ["previous", "digest"], batch_size=200)
    head.objects.create(pk=1, last_id=last_id, digest=digest)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_keep_views_of_lists"),
    ]

    operations = [
        migrations.CreateModel(
            name="ActivityHead",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("last_id", models.BigIntegerField()),
                ("digest", models.CharField(max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="ActivityCheck",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
                ("up_to_id", models.BigIntegerField()),
                ("entry_count", models.BigIntegerField()),
                ("broken_id", models.BigIntegerField(null=True)),
                ("problem", models.TextField(blank=True)),
            ],
        ),
        migrations.AddField(
            model_name="activityentry",
            name="cluster_id",
            field=models.CharField(blank=True, default="", max_length=40),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="activityentry",
            name="request_id",
            field=models.CharField(blank=True, default="", max_length=64),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="activityentry", name="previous", field=models.CharField(max_length=64, null=True)
        ),
        migrations.AddField(
            model_name="activityentry", name="digest", field=models.CharField(max_length=64, null=True)
        ),
        migrations.RunPython(chain_what_is_there, migrations.RunPython.noop),
        migrations.AlterField(
            model_name="activityentry", name="previous", field=models.CharField(max_length=64, unique=True)
        ),
        migrations.AlterField(model_name="activityentry", name="digest", field=models.CharField(max_length=64)),
    ]

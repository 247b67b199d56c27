from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("checkpoints", "0002_list_by_time_and_size"),
    ]

    operations = [
        migrations.AddField(
            model_name="inventoryscan",
            name="lease_token",
            field=models.CharField(blank=True, default="", max_length=40),
            preserve_default=False,
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("transfers", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="retentionpolicy",
            name="where",
            field=models.CharField(
                choices=[
                    ("as_reached", "Workers where they reach it, else an agent"),
                    ("agents", "Agents"),
                    ("workers", "Workers"),
                ],
                default="as_reached",
                max_length=16,
            ),
        ),
    ]

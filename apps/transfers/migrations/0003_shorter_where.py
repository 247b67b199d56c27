from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("transfers", "0002_policy_where"),
    ]

    operations = [
        migrations.AlterField(
            model_name="retentionpolicy",
            name="where",
            field=models.CharField(
                choices=[("as_reached", "Workers, else an agent"), ("agents", "Agents"), ("workers", "Workers")],
                default="as_reached",
                max_length=16,
            ),
        ),
    ]

"""The only Celery tasks: each loads by id and calls one service. Rows are the truth; a message only wakes."""

"""A made-up fleet of a given size, to try one's own database and server with. Nothing in it was measured: its clusters,
runs and plans are called `seeded-...`, and who asked for anything is `seed`."""

"""The demo: a bench, a replay of what it measured, and what probing saves. Every part real but the watts."""

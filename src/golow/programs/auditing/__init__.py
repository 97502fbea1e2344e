"""The choices that nobody made: what each one costs here, and what changing it brings."""

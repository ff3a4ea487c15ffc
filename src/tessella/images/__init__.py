"""Real images: read once into a cache, and changed at random on the device while a model trains."""

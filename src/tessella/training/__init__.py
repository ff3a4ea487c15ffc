"""Training on real images: recipes, the loop, and what it leaves behind."""

"""Sources of images, and splits of their classes."""

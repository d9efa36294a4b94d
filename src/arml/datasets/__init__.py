"""Where images and tables come from, and how their classes are split."""

"""Tables, figures and the page that show runs. Nothing here needs JAX."""

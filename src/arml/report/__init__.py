"""Tables, figures and the page that show what runs did. Nothing here needs JAX."""

"""Code shared by actors that follow, call and link to others."""

"""Time: the one seam through which workers and services read it and wait, its virtual form, and what silence means."""

"""Reports, profiles, pictures, and the page that shows them."""

"""Values as HTML for notebooks: what ``_repr_html_`` gives, without scripts, style sheets or files of its own."""

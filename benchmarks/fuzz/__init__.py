"""Generated requests against a server: no answer of 500 and above, none that never comes."""

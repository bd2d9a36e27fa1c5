"""What several verbs share. No verb lives here: they are the files one folder up."""

package fixity

"""The commands, one module per kind of thing they do; `cli` names them. Heavy imports wait inside each."""

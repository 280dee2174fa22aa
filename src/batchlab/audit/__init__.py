"""From somebody's file to an audited table, and its documents."""

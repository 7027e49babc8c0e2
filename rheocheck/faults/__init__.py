"""Library of fault classes that audits must reject (reserved: nothing here yet)."""

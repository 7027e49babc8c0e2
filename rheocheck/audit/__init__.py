"""Stages of an audit, one file each, and the rules that turn findings into a verdict."""

"""What people see: plain text and tables from the API's answers."""

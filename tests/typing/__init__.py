"""What type checkers say of code that uses tasklib."""

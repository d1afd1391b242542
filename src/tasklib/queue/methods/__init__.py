"""What a queue can do, one class of methods for each subject; `TaskQueue` is made of them."""

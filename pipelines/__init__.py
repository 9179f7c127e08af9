"""Config model, compiling stages into passes, the Beam graph, runners, command line."""

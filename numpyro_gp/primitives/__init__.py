"""What a user calls inside a model function: processes, observations and latent inputs."""

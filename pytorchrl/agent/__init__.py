"""Parts of an agent: environments, actors, explorers, planners, optimisers and algorithms."""

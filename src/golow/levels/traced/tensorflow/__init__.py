"""TensorFlow: the graph as the source of a tf.function."""

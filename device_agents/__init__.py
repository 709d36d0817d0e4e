"""What runs on the devices, and how the host reaches, deploys and steers it."""

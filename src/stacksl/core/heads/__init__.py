"""Final models fitted to convergence, with soft examples, label spreading and abstention."""

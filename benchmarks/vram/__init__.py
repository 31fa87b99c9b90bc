"""A replica beside a co-tenant that takes the device's memory and gives it back."""
